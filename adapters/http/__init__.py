"""The clients' side over HTTP and Server-Sent Events."""
