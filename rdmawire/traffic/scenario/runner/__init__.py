"""Running a scenario: its hosts, queue pairs and links, the work, and what was observed."""
