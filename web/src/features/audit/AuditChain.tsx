import { Badge, Stack } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { CopyText } from "../../components/CopyText.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Section } from "../../components/Layout.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { saveFile } from "../../lib/save-file.ts";
import { useOwner } from "../../shared/session/session-context.ts";
import { chainQuery, downloadChain, type ChainEnd } from "./chain.ts";

/** Whether the owner's audit log is unbroken, and a download of it. */
export function AuditChain(): ReactNode {
  const { address } = useOwner();
  const chain = useQuery(chainQuery(address));
  const download = useMutation({
    mutationFn: async () => {
      saveFile("purser-audit.jsonl", await downloadChain(), "application/x-ndjson");
    },
  });
  return (
    <Section
      title="Audit log"
      hint="Every action on your account is an entry in a hash chain. Your browser checks the entries added since its last check."
      actions={
        <MutationButton size="xs" mutation={download} pending="Downloading…">
          Download
        </MutationButton>
      }
    >
      <Stack gap="sm">
        <QueryStatus query={chain} what="the audit log" failed="The audit log could not be checked">
          <Skeleton shape="row" count={1} />
        </QueryStatus>
        {chain.data?.ok === true && <Verified end={chain.data.end} />}
        {chain.data?.ok === false && (
          <ErrorNotice
            title="The audit log was tampered with"
            error={
              new Error(
                `Entry ${chain.data.seq} ${chain.data.why}. Keep a copy and contact the operator of this service.`,
              )
            }
          />
        )}
        {download.isError && (
          <ErrorNotice title="The audit log was not downloaded" error={download.error} />
        )}
      </Stack>
    </Section>
  );
}

const Verified = ({ end }: { end: ChainEnd }): ReactNode => (
  <>
    <p>
      <Badge color="green">Verified up to entry {end.seq}</Badge>
    </p>
    <p>
      Seal, to keep outside Purser:{" "}
      <CopyText
        value={`${end.seq}:${end.hash}`}
        shown={`${end.seq}:${end.hash.slice(0, 8)}…${end.hash.slice(-8)}`}
        what="the seal"
      />
    </p>
  </>
);
