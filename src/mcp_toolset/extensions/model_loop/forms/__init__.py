"""The forms of model providers: tools in a request, and the calls in its answer decoded."""
