import { Badge, EmptyState } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Section } from "../../components/Layout.tsx";
import { List } from "../../components/List.tsx";
import { MoneyRow } from "../../components/MoneyRow.tsx";
import { shortAddress } from "../../lib/address.ts";
import { useParameter } from "../../lib/use-parameter.ts";
import { approvalsQuery } from "./api.ts";
import { ApprovalDrawer } from "./ApprovalDrawer.tsx";
import { STATUS } from "./words.ts";

export function Approvals(): ReactNode {
  const query = useInfiniteQuery(approvalsQuery);
  const [openId, setOpenId] = useParameter("approval");
  return (
    <>
      <Section
        flush
        title="Requests from your agents"
        hint="Payments that your rules refused and an agent asks you to allow once. Your rules do not change."
      >
        <List
          query={query}
          what="approvals"
          failed="The approvals could not be loaded"
          empty={
            <EmptyState
              title="No open requests"
              description="When a rule refuses a payment, the agent can ask you to allow it once. The request appears here."
            />
          }
        >
          {(approval) => (
            <MoneyRow
              key={approval.id}
              title={approval.agentName}
              meta={
                <>
                  to {approval.site ?? shortAddress(approval.payee)}
                  {approval.reason !== null && ` · “${approval.reason}”`}
                </>
              }
              badge={
                <Badge color={STATUS[approval.status].color}>{STATUS[approval.status].label}</Badge>
              }
              at={approval.createdAt}
              amount={approval.amount}
              onOpen={() => {
                setOpenId(approval.id);
              }}
            />
          )}
        </List>
      </Section>
      <ApprovalDrawer
        approvalId={openId === "" ? null : openId}
        known={query.data?.find(({ id }) => id === openId)}
        onClose={() => {
          setOpenId("");
        }}
      />
    </>
  );
}
