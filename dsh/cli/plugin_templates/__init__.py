"""A plugin called my-plugin of each kind and its test: what ``dsh plugins new`` writes under the name it is given."""
