"""Model providers' messages: an assistant's turn into plain calls, and results back into messages.

The objects of the providers' libraries and plain dictionaries are read alike, so that no library of a
provider is needed here.
"""
