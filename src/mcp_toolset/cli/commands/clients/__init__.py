"""Commands about the clients on this machine: install and uninstall."""
