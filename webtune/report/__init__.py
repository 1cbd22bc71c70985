"""What people and tools read about decisions."""
