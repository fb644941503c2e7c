import { Group, Stack } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { MutationButton, PendingButton } from "../../components/PendingButton.tsx";
import { Price } from "../../components/Price.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { Listing } from "../../lib/wire.ts";
import { useExplorer } from "../../shared/info.ts";
import { tryListing } from "./api.ts";
import { Receipt, VerdictNote } from "./TrialAnswers.tsx";

/** First a dry run, which pays nothing, then the payment. */
export function Trial({ agentId, listing }: { agentId: string; listing: Listing }): ReactNode {
  const explorer = useExplorer(listing.network);
  const dryRun = useMutation({
    mutationFn: () =>
      tryListing(agentId, { listingId: listing.id, dryRun: true }, crypto.randomUUID()),
  });
  // One idempotency key per dry run: a second press, or a retry after a lost response, pays once.
  const [payKey, setPayKey] = useState("");
  const pay = useMutation({
    mutationFn: () =>
      tryListing(agentId, { listingId: listing.id, maxAmount: listing.maxPrice }, payKey),
    onSettled: invalidate.afterPayment,
  });
  const quote = dryRun.data;
  const verdict = quote?.verdict;
  return (
    <Stack>
      <Group>
        <PendingButton
          // It makes a new key, so while a payment runs it could lead to a second one.
          disabled={pay.isPending}
          pending={dryRun.isPending && "Requesting…"}
          onClick={() => {
            pay.reset();
            setPayKey(crypto.randomUUID());
            dryRun.mutate();
          }}
        >
          Dry run
        </PendingButton>
        {verdict?.allowed === true && !pay.isSuccess && (
          <MutationButton variant="filled" mutation={pay} pending="Paying…">
            Pay {quote?.price !== undefined && <Price of={quote} />}
          </MutationButton>
        )}
      </Group>
      {dryRun.error && (
        <ErrorNotice title="The dry run failed" error={dryRun.error} onRetry={dryRun.mutate} />
      )}
      {verdict && !pay.isSuccess && (
        <VerdictNote verdict={verdict} of={typeof quote?.price === "string" ? quote : listing} />
      )}
      {pay.error && (
        <ErrorNotice title="The payment failed" error={pay.error} onRetry={pay.mutate} />
      )}
      {pay.data && <Receipt answer={pay.data} explorer={explorer} />}
    </Stack>
  );
}
