"""Dockerfile and k8s/: rendered by kubectl, held against Kubernetes' schemas, and run with the
programs themselves.

No cluster and no container engine is needed.
"""
