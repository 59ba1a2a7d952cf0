"""Approvals: calls that wait for a person where the client cannot ask; see docs/approvals.md."""

MENDS = {"guards": " such as [PolicyGuard(policy)]"}
