"""APIs as tools, by their OpenAPI documents."""
