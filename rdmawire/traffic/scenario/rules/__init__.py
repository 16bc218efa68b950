"""What must hold between the values of a scenario, beyond what each is by itself."""
