"""What every run shares."""
