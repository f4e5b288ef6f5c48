"""Campaigns: launched as processes of their own, driven and read through notebooks."""
