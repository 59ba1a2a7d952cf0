"""What a shell completes: commands, options, files, and the names of servers, tools and clients."""
