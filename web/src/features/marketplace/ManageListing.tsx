import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Button } from "../../components/Button.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { Row } from "../../components/Layout.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import { updateListing } from "./api.ts";
import { ListingForm } from "./ListingForm.tsx";
import { RemoveListing, type RemoveListingProps } from "./RemoveListing.tsx";

/** For the listing's owner: edit, pause, remove. */
export function ManageListing({ listing, onRemoved }: RemoveListingProps): ReactNode {
  const [isEditing, setEditing] = useState(false);
  const close = (): void => {
    setEditing(false);
  };
  const isPaused = listing.status === "paused";
  const pause = useMutation({
    mutationFn: () => updateListing(listing.id, { status: isPaused ? "active" : "paused" }),
    onSuccess: () => {
      notifications.show({
        message: isPaused ? "The listing is active." : "The listing is paused.",
      });
    },
    onError: (error) => {
      notifications.show({
        color: "red",
        title: "The listing was not changed",
        message: error.message,
      });
    },
    onSettled: invalidate.afterListing,
  });
  return (
    <>
      <Row>
        <Button
          onClick={() => {
            setEditing(true);
          }}
        >
          Edit
        </Button>
        <Button
          pending={pause.isPending && "Changing…"}
          onClick={() => {
            pause.mutate();
          }}
        >
          {isPaused ? "Resume" : "Pause"}
        </Button>
        <RemoveListing listing={listing} onRemoved={onRemoved} />
      </Row>
      <Dialog opened={isEditing} onClose={close} title="Edit the listing">
        {isEditing && <ListingForm listing={listing} onCancel={close} onDone={close} />}
      </Dialog>
    </>
  );
}
