"""Metrics and traces of calls by the conventions of OpenTelemetry; the packages for it load where it is on.

Calls are summed here, as an instrument of OpenTelemetry costs a call several times as much.
"""
