import { Button, SegmentedControl, Stack } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import type { ReactNode } from "react";
import { Link, useNavigate } from "react-router";
import { Dialog } from "../../components/Dialog.tsx";
import { PlusIcon } from "../../components/icons.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { ListingForm } from "../../features/marketplace/ListingForm.tsx";
import { Marketplace } from "../../features/marketplace/Marketplace.tsx";
import { useParameter } from "../../lib/use-parameter.ts";
import { OwnerOnly } from "../../shared/session/OwnerOnly.tsx";
import { useSession } from "../../shared/session/session-context.ts";

export default function MarketplaceScreen(): ReactNode {
  const { session } = useSession();
  const navigate = useNavigate();
  const [whose, setWhose] = useParameter("whose");
  const [isListing, { open, close }] = useDisclosure();
  const isMine = session !== null && session !== undefined && whose === "mine";
  return (
    <>
      <PageHeader
        title="Marketplace"
        lead="APIs that your agents can pay per call. Purser checks price and payee against the listing before each payment."
        actions={
          <>
            <Button component={Link} to="/validate">
              Check a paid API
            </Button>
            {session && (
              <OwnerOnly>
                <Button onClick={open}>
                  <PlusIcon size={16} />
                  List an API
                </Button>
              </OwnerOnly>
            )}
          </>
        }
      />
      <Stack>
        {session && (
          <SegmentedControl
            aria-label="Whose listings"
            value={whose}
            onChange={setWhose}
            data={[
              { value: "", label: "All" },
              { value: "mine", label: "My listings" },
            ]}
          />
        )}
        <Marketplace key={String(isMine)} mine={isMine} />
      </Stack>
      <Dialog opened={isListing} onClose={close} title="List an API">
        {isListing && (
          <ListingForm
            onCancel={close}
            onDone={(listing) => void navigate(`/marketplace/${listing.id}`)}
          />
        )}
      </Dialog>
    </>
  );
}
