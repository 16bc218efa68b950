"""Hostile octets for everything that reads octets, guided by coverage."""
