import { type ReactNode, useEffect } from "react";
import { useSearchParams } from "react-router";
import { PageHeader } from "../../components/PageHeader.tsx";
import { Invitation } from "../../features/teams/Invitation.tsx";
import { invalidate } from "../../lib/query-keys.ts";

export default function JoinScreen(): ReactNode {
  const [parameters] = useSearchParams();
  useEffect(() => {
    void invalidate.session();
  }, []);
  return (
    <>
      <PageHeader title="Join a team" />
      <Invitation id={parameters.get("order") ?? ""} />
    </>
  );
}
