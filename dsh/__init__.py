"""dsh: a daemon that runs AI agents from one file, ``cordis.yml``."""

__version__ = "0.1.0"
