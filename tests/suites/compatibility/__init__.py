"""The promises of docs/reference/compatibility.md: files of each release against today's programs."""
