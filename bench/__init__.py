"""What the package does on real hardware: ``python -m bench --check``, and tables of its results."""
