import { type ReactNode, useState } from "react";
import { useNavigate } from "react-router";
import { Button } from "../../components/Button.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { PlusIcon } from "../../components/icons.tsx";
import { Row, Stack } from "../../components/Layout.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { Segmented } from "../../components/Segmented.tsx";
import { ListingForm } from "../../features/marketplace/ListingForm.tsx";
import { Marketplace } from "../../features/marketplace/Marketplace.tsx";
import { useSession } from "../../shared/session/session-context.ts";
import { useParameter } from "../../lib/use-parameter.ts";

export default function MarketplaceScreen(): ReactNode {
  const { session } = useSession();
  const navigate = useNavigate();
  const [whose, setWhose] = useParameter("whose");
  const [isListing, setListing] = useState(false);
  const isMine = session !== null && session !== undefined && whose === "mine";
  return (
    <>
      <PageHeader
        title="Marketplace"
        lead="APIs that your agents can pay per call. Purser checks price and payee against the listing before each payment."
        actions={
          session && (
            <Button
              onClick={() => {
                setListing(true);
              }}
            >
              <PlusIcon size={16} />
              List an API
            </Button>
          )
        }
      />
      <Stack gap={4}>
        {session && (
          <Row>
            <Segmented
              label="Whose listings"
              value={whose}
              onChange={setWhose}
              options={[
                { value: "", label: "All" },
                { value: "mine", label: "My listings" },
              ]}
            />
          </Row>
        )}
        <Marketplace key={String(isMine)} mine={isMine} />
      </Stack>
      <Dialog
        opened={isListing}
        onClose={() => {
          setListing(false);
        }}
        title="List an API"
      >
        {isListing && (
          <ListingForm
            onCancel={() => {
              setListing(false);
            }}
            onDone={(listing) => void navigate(`/marketplace/${listing.id}`)}
          />
        )}
      </Dialog>
    </>
  );
}
