"""What is made of tools for others to read: signatures, stubs, short lists, and the types of exports."""
