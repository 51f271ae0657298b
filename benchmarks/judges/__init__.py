"""What rules for answers say about texts of real models that people labelled."""
