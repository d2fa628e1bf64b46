"""What classic programs try remote measuring with."""
