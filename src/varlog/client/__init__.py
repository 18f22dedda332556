"""What an application links: a cluster, its logs, appends, producers, reads and subscriptions. Nothing here serves."""
