"""loadtest/events.sh with few events."""
