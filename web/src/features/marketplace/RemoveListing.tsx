import { Button } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { ConfirmDialog } from "../../components/ConfirmDialog.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { Listing } from "../../lib/wire.ts";
import { deleteListing } from "./api.ts";

export interface RemoveListingProps {
  listing: Listing;
  onRemoved: () => void;
}

export function RemoveListing({ listing, onRemoved }: RemoveListingProps): ReactNode {
  const [isConfirming, confirming] = useDisclosure();
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
      <Button onClick={confirming.open}>Remove…</Button>
      <ConfirmDialog
        opened={isConfirming}
        title={`Remove ${listing.thirdParty.name}?`}
        mutation={remove}
        failed="The listing was not removed"
        confirm="Remove"
        pending="Removing…"
        onCancel={confirming.close}
      >
        Agents can no longer pay this API through the listing. The API itself is not changed.
      </ConfirmDialog>
    </>
  );
}
