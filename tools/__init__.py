"""Scripts for those who work on varlog itself. Standard library only; none is part of the package."""
