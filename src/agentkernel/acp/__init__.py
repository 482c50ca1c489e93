"""An agent for editors: the Agent Client Protocol on stdio, the agent itself in a sandbox."""
