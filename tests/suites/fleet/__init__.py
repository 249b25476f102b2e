"""Fleet: three rtad behind HAProxy with one S3 store, under load with verified answers.

Pods are restarted and killed, generations published, the store is cut off, broken configs are
pushed. Only requests in flight on a killed pod may fail, and no answer may be wrong. HAProxy uses
docs/haproxy.cfg. `up` is the fleet of `make fleet`.
"""
