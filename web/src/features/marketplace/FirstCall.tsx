import { Group, Stack, Text } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { CodeBlock } from "../../components/CodeBlock.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import { Price } from "../../components/Price.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import { fetchPaid } from "../../lib/snippets.ts";
import type { Agent, Listing } from "../../lib/wire.ts";
import { useExplorer, useInfo } from "../../shared/info.ts";
import { tryListing } from "./api.ts";
import { firstToBuy } from "./seller-payees.ts";
import { suggestedQuery } from "./suggested.ts";
import { Receipt } from "./TrialAnswers.tsx";

interface FirstCallProps {
  agent: Agent;
  isFunded: boolean;
  isPaid: boolean;
}

/** The first paid call: in local mode with one press, elsewhere by the agent, while the page waits for it. */
export function FirstCall({ agent, isFunded, isPaid }: FirstCallProps): ReactNode {
  const isLocal = useInfo()?.localWorld === true;
  const listings = useQuery(suggestedQuery).data ?? [];
  const listing = firstToBuy(listings, agent.allowlist);
  if (isLocal && listing && agent.dailyLimit !== "0")
    return <Pay agent={agent} listing={listing} isFunded={isFunded} isPaid={isPaid} />;
  return <Wait agent={agent} url={listing?.url} isPaid={isPaid} />;
}

function Pay({
  agent,
  listing,
  isFunded,
  isPaid,
}: FirstCallProps & { listing: Listing }): ReactNode {
  const explorer = useExplorer(listing.network);
  // One key for all presses: a retry after a lost response pays once.
  const [idempotencyKey] = useState(() => crypto.randomUUID());
  const pay = useMutation({
    mutationFn: () =>
      tryListing(agent.id, { listingId: listing.id, maxAmount: listing.maxPrice }, idempotencyKey),
    onSettled: invalidate.afterPayment,
  });
  if (pay.data) return <Receipt answer={pay.data} explorer={explorer} />;
  if (isPaid) return <Paid />;
  return (
    <Stack gap="xs">
      <Group>
        <MutationButton
          variant={isFunded ? "filled" : "default"}
          disabled={!isFunded}
          mutation={pay}
          pending="Paying…"
        >
          Pay <Price of={listing} />
        </MutationButton>
      </Group>
      <Text c="dimmed" size="sm">
        The agent buys <q>{listing.thirdParty.name}</q> at {listing.host}, within its rules.
      </Text>
      {pay.error && (
        <ErrorNotice title="The payment failed" error={pay.error} onRetry={pay.mutate} />
      )}
    </Stack>
  );
}

function Wait({
  agent,
  url,
  isPaid,
}: Pick<FirstCallProps, "agent" | "isPaid"> & { url: string | undefined }): ReactNode {
  const info = useInfo();
  const base = info?.publicUrl ?? globalThis.location.origin;
  const target = url ?? `${base}${info?.networks[0]?.demoPath ?? "/api/arc-stats"}`;
  const isAsking = agent.dailyLimit === "0";
  if (isPaid) return <Paid />;
  return (
    <Stack gap="xs">
      <CodeBlock
        label="Fetch a paid API"
        code={fetchPaid(base, "$AGENT_API_KEY", {
          url: target,
          ...(isAsking && { requestApproval: true }),
        })}
      />
      <Text c="dimmed" size="sm" role="status">
        {isAsking
          ? "Waiting for the first call. You will be asked to approve it."
          : "Waiting for the first call."}
      </Text>
    </Stack>
  );
}

const Paid = (): ReactNode => (
  <Text size="sm" role="status">
    The first call is paid.
  </Text>
);
