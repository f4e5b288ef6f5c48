"""Code that runs inside a box. Standard library only, few imports: every box pays for its start-up."""
