"""Commands about credentials: logins to servers, and secrets."""
