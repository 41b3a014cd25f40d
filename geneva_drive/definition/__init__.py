"""What the author of a workflow class wrote. Nothing here touches a database."""
