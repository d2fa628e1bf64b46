"""What the projects' servers do: one file per platform, and what they share."""
