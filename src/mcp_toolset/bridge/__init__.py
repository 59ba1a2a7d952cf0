"""Old import paths, each of which says where its names have moved. Nothing else imports them."""
