"""Repeating calls of mounted servers, circuit breakers, and `RetryLimit`, which refuses tools that fail."""
