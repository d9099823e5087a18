"""Definitions that converted scripts get: torch and the standard library only, nothing of dp2ddp."""
