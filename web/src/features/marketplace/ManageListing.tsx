import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Button } from "../../components/Button.tsx";
import { ConfirmDialog } from "../../components/ConfirmDialog.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { Row } from "../../components/Layout.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { Listing } from "../../lib/wire.ts";
import { deleteListing, updateListing } from "./api.ts";
import { ListingForm } from "./ListingForm.tsx";

/** For the owner of a listing: edit, pause, remove. */
export function ManageListing({
  listing,
  onRemoved,
}: {
  listing: Listing;
  onRemoved: () => void;
}): ReactNode {
  const [open, setOpen] = useState<"edit" | "remove">();
  const close = (): void => {
    setOpen(undefined);
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
  const remove = useMutation({
    mutationFn: () => deleteListing(listing.id),
    onSuccess: async () => {
      notifications.show({ message: `${listing.name} is no longer listed.` });
      await invalidate.afterListingRemoved();
      onRemoved();
    },
  });
  return (
    <>
      <Row>
        <Button
          onClick={() => {
            setOpen("edit");
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
        <Button
          onClick={() => {
            setOpen("remove");
          }}
        >
          Remove…
        </Button>
      </Row>
      <Dialog opened={open === "edit"} onClose={close} title="Edit the listing">
        {open === "edit" && <ListingForm listing={listing} onCancel={close} onDone={close} />}
      </Dialog>
      <ConfirmDialog
        opened={open === "remove"}
        title={`Remove ${listing.name}?`}
        confirm="Remove"
        pending={remove.isPending && "Removing…"}
        failed="The listing was not removed"
        error={remove.error}
        onCancel={close}
        onConfirm={() => {
          remove.mutate();
        }}
      >
        Agents can no longer call it by this listing. The API itself is not touched.
      </ConfirmDialog>
    </>
  );
}
