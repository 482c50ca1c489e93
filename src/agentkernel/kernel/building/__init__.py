"""How an image is built: stages and steps, commands of them in sandboxes."""
