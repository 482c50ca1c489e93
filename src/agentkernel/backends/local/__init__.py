"""What engines on this machine share: ids, control groups, directories, the launcher."""
