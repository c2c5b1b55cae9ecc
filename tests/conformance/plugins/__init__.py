"""Rows named ``test:<id>`` of the recorded compositions, mounted by the path of their file."""
