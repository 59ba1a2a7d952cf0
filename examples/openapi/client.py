"""An API by the address of its document, with a key, with retries, and with files to upload."""

import os

from mcp_toolset import OpenAPIToolset, serve

crm = OpenAPIToolset(
    "https://crm.example.com/openapi.json",
    credentials={"api_key": os.environ.get("CRM_KEY", "")},
    files="uploads",
    retries=2,
)

if __name__ == "__main__":
    serve(crm)
