import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Button } from "../../components/Button.tsx";
import { ConfirmDialog } from "../../components/ConfirmDialog.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { Listing } from "../../lib/wire.ts";
import { deleteListing } from "./api.ts";

export interface RemoveListingProps {
  listing: Listing;
  onRemoved: () => void;
}

export function RemoveListing({ listing, onRemoved }: RemoveListingProps): ReactNode {
  const [isConfirming, setConfirming] = useState(false);
  const remove = useMutation({
    mutationFn: () => deleteListing(listing.id),
    onSuccess: async () => {
      notifications.show({ message: `${listing.thirdParty.name} is no longer listed.` });
      await invalidate.afterListingRemoved();
      onRemoved();
    },
  });
  return (
    <>
      <Button
        onClick={() => {
          setConfirming(true);
        }}
      >
        Remove…
      </Button>
      <ConfirmDialog
        opened={isConfirming}
        title={`Remove ${listing.thirdParty.name}?`}
        confirm="Remove"
        pending={remove.isPending && "Removing…"}
        failed="The listing was not removed"
        error={remove.error}
        onCancel={() => {
          setConfirming(false);
        }}
        onConfirm={() => {
          remove.mutate();
        }}
      >
        Agents can no longer pay this API through the listing. The API itself is not changed.
      </ConfirmDialog>
    </>
  );
}
