"""Tasks: Harbor-layout directories read into `Task`, pools with seeded orders, the practice pool."""
