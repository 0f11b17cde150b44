"""Methods side by side: the same sequences, the same splits, the same risks; every decision is kept."""
