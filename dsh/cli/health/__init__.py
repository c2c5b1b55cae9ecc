"""What `dsh doctor` looks at: each module checks one part of an installation and yields findings."""
