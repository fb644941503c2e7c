import { Button, Group } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Dialog } from "../../components/Dialog.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import { toastFailure } from "../../components/toast.ts";
import { invalidate } from "../../lib/query-keys.ts";
import { updateListing } from "./api.ts";
import { ListingForm } from "./ListingForm.tsx";
import { RemoveListing, type RemoveListingProps } from "./RemoveListing.tsx";

/** For the listing's owner: edit, pause, remove. */
export function ManageListing({ listing, onRemoved }: RemoveListingProps): ReactNode {
  const [isEditing, { open, close }] = useDisclosure();
  const isPaused = listing.status === "paused";
  const pause = useMutation({
    mutationFn: () => updateListing(listing.id, { status: isPaused ? "active" : "paused" }),
    onSuccess: () => {
      notifications.show({
        message: isPaused ? "The listing is active." : "The listing is paused.",
      });
    },
    onError: toastFailure("The listing was not changed"),
    onSettled: invalidate.afterListing,
  });
  return (
    <>
      <Group>
        <Button onClick={open}>Edit</Button>
        <MutationButton mutation={pause} pending="Changing…">
          {isPaused ? "Resume" : "Pause"}
        </MutationButton>
        <RemoveListing listing={listing} onRemoved={onRemoved} />
      </Group>
      <Dialog opened={isEditing} onClose={close} title="Edit the listing">
        {isEditing && <ListingForm listing={listing} onCancel={close} onDone={close} />}
      </Dialog>
    </>
  );
}
