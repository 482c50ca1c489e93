"""What a sandbox with a network is told of it: clients' files, variables, a page for agents."""
